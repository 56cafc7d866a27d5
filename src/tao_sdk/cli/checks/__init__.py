"""What `tao-sdk doctor` looks at. Every check looks and changes nothing."""
