"""The API's views: thin, and the same in the intake and the console."""
