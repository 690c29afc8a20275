"""What a coding agent may ask about runs, over the Model Context Protocol."""
