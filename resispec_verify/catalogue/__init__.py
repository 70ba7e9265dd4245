"""The rules beside one another: claimed against measured exactness, and the search for witnesses."""
