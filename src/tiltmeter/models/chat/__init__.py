"""Chat models: one in a folder here, or one behind a server that speaks OpenAI's protocol."""
