"""The clients of onboarding's services, one module each. They use `http`, which translates the answers."""
