"""The documentation: Markdown for readers, and the program that writes its generated parts."""
