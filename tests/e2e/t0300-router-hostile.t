#!/bin/sh
# Hostile and unusual HTTP against a router with a scripted engine.
exec python3 tests/e2e/http_cases.py
