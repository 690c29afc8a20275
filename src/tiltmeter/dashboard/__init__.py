"""The HTTP server of the page: who may ask, what is answered, and the stream of news."""
