"""Scripts of the world, as far as models care."""

import re

# scripts that put no spaces between words: Thai, Lao, Myanmar, Khmer, kana, Han
UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
