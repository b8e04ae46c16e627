"""A search around a recipe: successive halving over one table of entries, resumable, from data to the best model."""
