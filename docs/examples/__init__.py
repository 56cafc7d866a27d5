"""Code that the documentation shows, in files so that it can be run and checked."""
