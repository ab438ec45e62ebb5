"""Obtain, keep, refresh and hide credentials; one file per way of getting them."""
