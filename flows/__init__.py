"""Prefect flows over mixer's verbs: they schedule, retry, show and report; the commit log stays the truth."""
