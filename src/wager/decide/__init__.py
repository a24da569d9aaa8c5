"""Answers that are best for the metric they will be judged by: laws of answers, and rules that decide on them."""
