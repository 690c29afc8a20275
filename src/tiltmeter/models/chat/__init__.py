"""A chat model behind a server that speaks OpenAI's protocol."""
