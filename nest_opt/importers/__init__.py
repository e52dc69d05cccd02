"""Other people's files -> problems. One module per source; nothing is unpickled or executed."""
