"""The clients of the services that onboarding calls, one module each, over `http`, which translates their answers."""
