"""A finished run behind HTTP: an ASGI application that knows neither Ray nor a particular server."""
