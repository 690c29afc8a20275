"""Ways of asking a judge about one answer: a method asks a few questions and gives a grade and a confidence."""
