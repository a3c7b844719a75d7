"""Complete programs of the guide; the tests run them, and the guide shows them as they stand here."""
