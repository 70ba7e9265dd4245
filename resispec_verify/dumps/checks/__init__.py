"""What is odd or wrong about rows and what lies beside them."""
