package fakeprovider

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"unicode/utf8"
)

// The words of generated text. With a leading space each is exactly one token in o200k_base and
// cl100k_base, so a text of n pieces has n tokens; a test checks that.
var words = map[byte][]string{
	'S': {" The", " This", " That", " Each", " Every", " Our", " Your", " One"},
	'd': {" the", " a", " this", " each", " every", " our", " one", " another"},
	'a': {
		" small", " large", " quiet", " simple", " careful", " early", " open", " green", " strong", " useful",
		" common", " clear", " local", " fresh", " long",
	},
	'n': {
		" river", " garden", " report", " market", " window", " question", " answer", " teacher", " engine", " summer",
		" letter", " village", " number", " station", " kitchen", " bridge", " winter", " picture", " music", " plan",
	},
	'v': {
		" holds", " moves", " keeps", " shows", " needs", " makes", " finds", " turns", " carries", " brings",
		" follows", " explains", " gives", " takes", " meets",
	},
	'p': {" near", " under", " behind", " before", " after", " with", " without", " through", " around", " beyond"},
	'c': {" and", " but", " while", " because", " so", " where"},
	'.': {"."},
	',': {","},
}

// patterns are sentences, one letter per word class.
var patterns = []string{
	"Sanvdn.",
	"Snvdanpdn.",
	"Snpdnvdan.",
	"Sanvdn,cdnvdn.",
	"Snvdn,cdanpdnvdn.",
}

// newRand returns a generator seeded by its arguments.
func newRand(parts ...any) *rand.Rand {
	sum := sha256.Sum256(fmt.Append(nil, parts...))
	return rand.New(rand.NewPCG(binary.LittleEndian.Uint64(sum[:]), binary.LittleEndian.Uint64(sum[8:])))
}

// prose generates one token at a time, without end.
type prose struct {
	rng     *rand.Rand
	pattern string
	started bool
}

func (p *prose) next() string {
	if p.pattern == "" {
		p.pattern = patterns[p.rng.IntN(len(patterns))]
	}
	list := words[p.pattern[0]]
	p.pattern = p.pattern[1:]
	word := list[p.rng.IntN(len(list))]
	if !p.started {
		p.started = true
		return strings.TrimPrefix(word, " ")
	}
	return word
}

// take returns n pieces; if finished, the text ends with a full stop where possible.
func (p *prose) take(n int64, finished bool) []string {
	pieces := make([]string, 0, n)
	for range n {
		pieces = append(pieces, p.next())
	}
	if finished && n >= 2 && pieces[n-2] != "." && pieces[n-2] != "," {
		pieces[n-1] = "."
	}
	return pieces
}

// split splits a text into n pieces of about equal length, between runes.
func split(text string, n int64) []string {
	var pieces []string
	step := max(1, len(text)/int(max(n, 1)))
	for len(text) > 0 {
		end := min(step, len(text))
		for end < len(text) && !utf8.RuneStart(text[end]) {
			end++
		}
		pieces = append(pieces, text[:end])
		text = text[end:]
	}
	return pieces
}

// truncate returns the longest prefix of a text with at most limit tokens.
func truncate(model, text string, limit int64) string {
	low, high := 0, len(text)
	for low < high {
		mid := (low + high + 1) / 2
		if countText(model, text[:mid]) <= limit {
			low = mid
		} else {
			high = mid - 1
		}
	}
	for low > 0 && low < len(text) && !utf8.RuneStart(text[low]) {
		low--
	}
	return text[:low]
}
