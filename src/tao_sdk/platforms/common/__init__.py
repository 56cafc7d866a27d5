"""What several platforms share: small modules that know no platform."""
