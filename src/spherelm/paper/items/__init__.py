"""The paper's figures and tables, a file each: its runs, and how it is made of them."""
