"""Bytes between ranks."""
