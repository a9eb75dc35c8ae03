"""The API's views: thin, and the same in both WSGI entries."""
