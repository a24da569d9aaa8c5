"""Paired measurements: methods × prompts, interleaved, as JSON lines; statistics and a report over them."""
