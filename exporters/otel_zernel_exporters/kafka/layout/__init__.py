"""The layout of messages: the parts of a batch, their keys and topics, and their sizes. No I/O."""
