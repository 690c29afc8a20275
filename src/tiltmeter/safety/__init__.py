"""The only ways out for text that a model wrote, and the careful loading of code that a user names."""
