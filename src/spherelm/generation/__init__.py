"""Text from a trained model: `sampling` chooses tokens, `cached` gives logits, `engine` loops."""
