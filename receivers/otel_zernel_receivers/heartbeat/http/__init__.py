"""The workers over HTTP and WebSocket, as routes of the API."""
