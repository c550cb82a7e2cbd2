"""HTTP/1.1 connections: uvicorn's protocol, with bounds."""
