package tokenizer

import "unicode/utf8"

// The splitter splits text into the pieces of the published patterns
//
//	o200k_base  [^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?
//	           |[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?
//	           |\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+
//	cl100k_base (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}
//	           | ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
//
// without regular expressions, in linear time. Every function takes valid UTF-8 and returns the end
// of the piece, and whether the decision depends on the end of the input, so that more input could
// change it ("open").

// nextO200k returns the end of the o200k_base piece that starts at s[i].
func (t *classTable) nextO200k(s []byte, i int) (end int, open bool) {
	c, w := t.at(s, i)
	if c&cased != 0 {
		return t.wordO200k(s, i)
	}
	if c&noHead == 0 {
		if j := i + w; j < len(s) {
			if next, _ := t.at(s, j); next&cased != 0 {
				return t.wordO200k(s, j)
			}
		}
	}
	return t.notWord(s, i, c, w, true)
}

// wordO200k returns the end of the word that starts at s[j]: capitals and caseless letters, then
// small and caseless ones. If there are no small letters, the pattern backtracks over the capitals
// after the last caseless letter.
func (t *classTable) wordO200k(s []byte, j int) (end int, open bool) {
	k, lastBoth := j, -1
	c, w := uint8(0), 0
	for k < len(s) {
		if b := s[k]; b < utf8.RuneSelf {
			c, w = t.ascii[b], 1
		} else if b < 0xE0 && k+1 < len(s) {
			c, w = t.two(b, s[k+1]), 2
		} else {
			c, w = t.decode(s, k)
		}
		if c&(upper|both) == 0 {
			break
		}
		k += w
		if c&both != 0 {
			lastBoth = k
		}
	}
	switch {
	case k == len(s):
		if lastBoth >= 0 {
			k = lastBoth
		}
		return k, true
	case c&lower != 0:
		for k += w; k < len(s); k += w {
			if b := s[k]; b < utf8.RuneSelf {
				c, w = t.ascii[b], 1
			} else if b < 0xE0 && k+1 < len(s) {
				c, w = t.two(b, s[k+1]), 2
			} else {
				c, w = t.decode(s, k)
			}
			if c&(lower|both) == 0 {
				break
			}
		}
		if k == len(s) {
			return k, true
		}
	case lastBoth >= 0:
		k = lastBoth
	}
	if s[k] != '\'' {
		return k, false
	}
	n := contraction(s, k)
	return k + n, n == 0 && len(s)-k < 3
}

// nextCL100k returns the end of the cl100k_base piece that starts at s[i].
func (t *classTable) nextCL100k(s []byte, i int) (end int, open bool) {
	c, w := t.at(s, i)
	if s[i] == '\'' {
		if n := contraction(s, i); n > 0 {
			return i + n, false
		}
	}
	if letter(c) {
		return t.wordCL100k(s, i+w)
	}
	if c&noHead == 0 {
		if j := i + w; j < len(s) {
			if next, nw := t.at(s, j); letter(next) {
				return t.wordCL100k(s, j+nw)
			}
		}
	}
	return t.notWord(s, i, c, w, false)
}

// wordCL100k returns the end of the run of letters that continues at s[k].
func (t *classTable) wordCL100k(s []byte, k int) (end int, open bool) {
	for k < len(s) {
		c, w := t.ascii[s[k]], 1
		if c == wide {
			if b := s[k]; b < 0xE0 && k+1 < len(s) {
				c, w = t.two(b, s[k+1]), 2
			} else {
				c, w = t.decode(s, k)
			}
		}
		if !letter(c) {
			return k, false
		}
		k += w
	}
	return k, true
}

// letter reports whether a character of class c is of category L.
func letter(c uint8) bool { return c&cased != 0 && c&mark == 0 }

// notWord returns the end of a number, punctuation or white-space piece that
// starts at s[i], a character of class c and length w.
func (t *classTable) notWord(s []byte, i int, c uint8, w int, slash bool) (end int, open bool) {
	switch {
	case c&number != 0:
		return t.digits(s, i+w)
	case c&space == 0:
		return t.punctuation(s, i+w, slash)
	}
	if s[i] == ' ' && i+1 < len(s) {
		if next, nw := t.at(s, i+1); next&(space|number) == 0 && !letter(next) {
			return t.punctuation(s, i+1+nw, slash)
		}
	}
	return t.blank(s, i)
}

// digits returns the end of a number whose first digit ends at s[k].
func (t *classTable) digits(s []byte, k int) (end int, open bool) {
	for range 2 {
		if k == len(s) {
			return k, true
		}
		c, w := t.at(s, k)
		if c&number == 0 {
			return k, false
		}
		k += w
	}
	return k, false
}

// punctuation returns the end of a run of punctuation whose first character
// ends at s[k], with the line ends (and slashes in o200k_base) that follow it.
func (t *classTable) punctuation(s []byte, k int, slash bool) (end int, open bool) {
	for k < len(s) {
		c, w := t.at(s, k)
		if c&(space|number) != 0 || letter(c) {
			break
		}
		k += w
	}
	for k < len(s) && (s[k] == '\n' || s[k] == '\r' || slash && s[k] == '/') {
		k++
	}
	return k, k == len(s)
}

// blank returns the end of the white space that starts at s[i]: after its last line end if it has
// one; otherwise all of it at the end of the text, and all but its last character before anything
// else.
func (t *classTable) blank(s []byte, i int) (end int, open bool) {
	k := i
	last := i
	lineEnd := -1
	for k < len(s) {
		c, w := t.at(s, k)
		if c&space == 0 {
			break
		}
		last = k
		k += w
		if c&newline != 0 {
			lineEnd = k
		}
	}
	open = k == len(s)
	switch {
	case lineEnd >= 0:
		return lineEnd, open
	case open || last == i:
		return k, open
	default:
		return last, false
	}
}

// contraction returns the length of the contraction that starts at the
// apostrophe s[k] ('s 't 'm 'd 're 've 'll, any case; the long s, U+017F, is an s), or 0.
func contraction(s []byte, k int) int {
	if k+1 >= len(s) {
		return 0
	}
	switch s[k+1] | 0x20 {
	case 's', 't', 'm', 'd':
		return 2
	case 'r', 'v':
		if k+2 < len(s) && s[k+2]|0x20 == 'e' {
			return 3
		}
	case 'l':
		if k+2 < len(s) && s[k+2]|0x20 == 'l' {
			return 3
		}
	case 0xC5 | 0x20:
		if k+2 < len(s) && s[k+1] == 0xC5 && s[k+2] == 0xBF {
			return 3
		}
	}
	return 0
}
