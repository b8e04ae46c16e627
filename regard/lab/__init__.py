"""Experiments that compare parts of the house under equal conditions."""
