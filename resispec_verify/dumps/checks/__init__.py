"""What is odd or wrong about rows and what lies beside them.

`companions`: keys beside logits that change what they mean; `looks`: probabilities, logarithms, sorted
values; `whole`: whether rows can be over a vocabulary; `oddities`: what is allowed and worth hearing.
"""
