"""The OpenAI-compatible server: one engine thread behind an asynchronous edge."""
