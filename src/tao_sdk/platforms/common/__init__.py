"""Small modules that several platforms share; none knows a platform."""
