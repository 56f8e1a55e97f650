package tokenizer

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/llmguard/llmguard/internal/redistest"
)

// TestTextsEqualTiktoken: ordinary text in 13 languages, code, JSON, logs and base64 count as in
// tiktoken-go.
func TestTextsEqualTiktoken(t *testing.T) {
	size := rounds(20_000, 1_000_000)
	eachOurs(t, func(t *testing.T, enc Encoding) {
		t.Parallel()
		want := oracle(t, enc)
		for _, k := range kinds {
			text := k.text(size)
			if got, want := Count(enc, text), want(text); got != want {
				t.Errorf("%s: %d, want %d", k.name, got, want)
			}
		}
	})
}

// TestHostileEqualsTiktoken: hostile text counts as in tiktoken-go, up to the size that it can
// handle, and around scanMax and missMax.
func TestHostileEqualsTiktoken(t *testing.T) {
	eachOurs(t, func(t *testing.T, enc Encoding) {
		t.Parallel()
		want := oracle(t, enc)
		for _, h := range hostile {
			for _, size := range []int{2, 3, 7, 8, 15, 16, 31, 32, 33, 34, 55, 56, 57, 64, 65, 127, 128, 129, 1000, rounds(4000, 8000)} {
				text := h.text(size)
				if got, want := Count(enc, text), want(text); got != want {
					t.Errorf("%s, %d bytes: %d, want %d", h.name, size, got, want)
				}
			}
		}
	})
}

// TestHugePieces: pieces above 64 KB are counted in windows, which may be off by about one token
// per window.
func TestHugePieces(t *testing.T) {
	size := rounds(80_000, 2_000_000)
	for _, enc := range ours {
		c, err := codecOf(enc)
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range hostile {
			text := appendValid(nil, h.text(size))
			exact, b := 0, newBucketMerge()
			for i := 0; i < len(text); {
				e, _ := c.next(text, i)
				exact += b.count(c.vocab, text[i:e])
				i = e
			}
			got := Count(enc, text)
			if slack := 2 * (1 + len(text)/window); got < exact-slack || got > exact+slack {
				t.Errorf("%v %s: %d, whole pieces %d", enc, h.name, got, exact)
			}
		}
	}
}

// TestMergesAgree: the three ways to count a piece agree, also where only one is used.
func TestMergesAgree(t *testing.T) {
	c, err := codecOf(O200k)
	if err != nil {
		t.Fatal(err)
	}
	b, w := newBucketMerge(), new(walker)
	mix := newMixer(t, O200k)
	scripts := mix.scripts()
	walked := 0
	for i := range rounds(2_500, 100_000) {
		p := hostile[mix.IntN(len(hostile))].text(2 + mix.IntN(5*scanMax))
		if i%10 > 0 {
			if p = mix.phrase(scripts[mix.IntN(len(scripts))]); len(p) < 2 {
				continue
			}
		}
		buckets := b.count(c.vocab, p)
		if walk, ok := c.walk(p, w); ok {
			if walked++; walk != buckets {
				t.Fatalf("%q: walk %d, buckets %d", p, walk, buckets)
			}
		}
		if len(p) > scanMax {
			continue
		}
		if scan := c.scan(p, new(scratch)); scan != buckets {
			t.Fatalf("%q: scan %d, buckets %d", p, scan, buckets)
		}
	}
	if want := rounds(200, 8_000); walked < want {
		t.Errorf("%d pieces were walked to their end, want at least %d", walked, want)
	}
	if slices.IndexFunc(b.head, func(e int32) bool { return e != 0 }) >= 0 || b.level[2][0] != 0 {
		t.Error("buckets are not empty after a count")
	}
}

// TestPairs: every pair that a token merges from is found, and no other pair of tokens.
func TestPairs(t *testing.T) {
	for _, enc := range ours {
		c, err := codecOf(enc)
		if err != nil {
			t.Fatal(err)
		}
		mix, made := newMixer(t, enc), map[[2]uint32]uint32{}
		tokens := make([]uint32, len(mix.tokens))
		for rank, token := range mix.tokens {
			tokens[rank] = uint32(rank)<<groupBits | groupOf(token)
			if info := c.info[rank]; len(token) > 1 {
				made[[2]uint32{info.left(), info.right()}] = tokens[rank]
			}
		}
		for pair, want := range made {
			if got := c.merge(pair[0], pair[1]); got != want {
				t.Fatalf("%v: %d and %d make %d, want %d", enc, pair[0], pair[1], got, want)
			}
		}
		for range 200_000 {
			pair := [2]uint32{tokens[mix.IntN(len(tokens))], tokens[mix.IntN(len(tokens))]}
			if _, ok := made[pair]; !ok && c.merge(pair[0], pair[1]) != none {
				t.Fatalf("%v: %d and %d merge", enc, pair[0], pair[1])
			}
		}
	}
}

// TestTrie: the trie finds every token, and the longest prefix of every token.
func TestTrie(t *testing.T) {
	for _, enc := range ours {
		c, err := codecOf(enc)
		if err != nil {
			t.Fatal(err)
		}
		for id, token := range vocabulary(t, enc) {
			if got, n := c.trie().longest(token); got>>groupBits != uint32(id) || n != len(token) {
				t.Fatalf("%v: the longest token of %q is %d of %d bytes, want %d", enc, token, got>>groupBits, n, id)
			}
			info, prefix := c.info[id], uint32(id)
			if len(token) > 1 {
				prefix, _ = c.trie().longest(token[:len(token)-1])
				prefix >>= groupBits
			}
			if info.size() != len(token) || c.trie().prefix[id]>>groupBits != prefix {
				t.Fatalf("%v: %q has size %d and prefix %d, want %d", enc, token, info.size(), c.trie().prefix[id]>>groupBits, prefix)
			}
		}
	}
}

// TestWalkGivesUp: a walk with too many dead ends gives up and leaves no state behind.
func TestWalkGivesUp(t *testing.T) {
	c, err := codecOf(O200k)
	if err != nil {
		t.Fatal(err)
	}
	w := new(walker)
	if n, ok := c.walk(hostileText("dashes", 50_000), w); ok {
		t.Errorf("dashes are walked to %d tokens", n)
	}
	if w.dead != new(walker).dead {
		t.Error("dead positions are left")
	}
}

func TestInvalidUTF8(t *testing.T) {
	for _, text := range []string{"\xff", "a\xe2\x82", "\xed\xa0\x80", "\xc0\xafx", "\xf8\x88\x80\x80\x80", "ok\x80\x80 ok", "\xf4\x90\x80\x80"} {
		for _, enc := range ours {
			got := CountClasses(enc, []byte(text))
			want := CountClasses(enc, []byte(string([]rune(text)))) // U+FFFD per bad byte
			if want.Bytes = len(text); got != want {
				t.Errorf("%v %q: %+v, want %+v", enc, text, got, want)
			}
		}
	}
}

func TestEmpty(t *testing.T) {
	for _, enc := range []Encoding{O200k, CL100k, P50k, R50k} {
		if n := Count(enc, nil); n != 0 {
			t.Errorf("%v: %d", enc, n)
		}
	}
}

// TestLegacy: the encodings of tiktoken-go are correct, and long runs are cut into chunks.
func TestLegacy(t *testing.T) {
	for _, enc := range []Encoding{P50k, R50k} {
		want := oracle(t, enc)
		for _, k := range kinds {
			text := k.text(900)
			if got, want := Count(enc, text), want(text); got != want {
				t.Errorf("%v %s: %d, want %d", enc, k.name, got, want)
			}
		}
		text := []byte(strings.Repeat("a", 20*legacyChunk))
		got, whole := Count(enc, text), want(text[:8*legacyChunk])*20/8
		if got < whole || got > whole+20 {
			t.Errorf("%v: %d in chunks, about %d whole", enc, got, whole)
		}
	}
}

func TestWarm(t *testing.T) {
	for _, enc := range []Encoding{O200k, CL100k, P50k, R50k} {
		if err := Warm(enc); err != nil {
			t.Error(err)
		}
		if enc.String() == "" {
			t.Error("no name")
		}
	}
	if err := Warm(R50k + 1); err == nil {
		t.Error("an unknown encoding is warm")
	}
}

// TestRankDataIsChecked: rank data of another encoding is refused, and so are a file of another length and a token
// that is made of later ones.
func TestRankDataIsChecked(t *testing.T) {
	other := o200kSpec
	other.file = cl100kSpec.file
	if _, err := newVocab(other); err == nil || !strings.Contains(err.Error(), "100256 tokens, want 199998") {
		t.Errorf("wrong file: %v", err)
	}
	raw := append(make([]byte, singles), 0, 0, 0, 0, 1, 0)
	if _, err := parseRanks(raw, singles+1); err == nil || !strings.Contains(err.Error(), "rank 256 is made of ranks 0 and 256") {
		t.Errorf("a token is made of itself: %v", err)
	}
	if _, err := parseRanks(raw[1:], singles+1); err == nil || !strings.Contains(err.Error(), "261 bytes") {
		t.Errorf("a file of another length: %v", err)
	}
}

func TestCountDoesNotAllocate(t *testing.T) {
	if raceOn {
		t.Skip("sync.Pool drops at random under the race detector")
	}
	texts := [][]byte{kinds[0].text(16_000), kinds[6].text(4_000), hostileText("a", 100_000), []byte("bad \xff byte")}
	for _, enc := range ours {
		for _, text := range texts {
			Count(enc, text)
			if n := testing.AllocsPerRun(20, func() { Count(enc, text) }); n >= 1 {
				t.Errorf("%v %.10q: %v allocations", enc, text, n)
			}
		}
	}
	c := NewCache()
	if n := testing.AllocsPerRun(20, func() { c.Count(O200k, texts[0]) }); n >= 1 {
		t.Errorf("cache: %v allocations", n)
	}
}

// TestConcurrentEncodings: goroutines that switch between encodings do not mix up scratches.
func TestConcurrentEncodings(t *testing.T) {
	texts := make([][]byte, 0, len(kinds))
	want := map[Encoding][]int{}
	for _, k := range kinds {
		texts = append(texts, k.text(700))
	}
	for _, enc := range ours {
		for _, text := range texts {
			want[enc] = append(want[enc], oracle(t, enc)(text))
		}
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 300 {
				enc, k := ours[(g+i)%2], (g*7+i)%len(texts)
				if got := Count(enc, texts[k]); got != want[enc][k] {
					t.Errorf("%v %s: %d, want %d", enc, kinds[k].name, got, want[enc][k])
				}
			}
		})
	}
	redistest.Wait(t, wg.Wait)
}

// TestPiecesOfUnicode16 splits letters that are not in Go's tables, and the long s after an
// apostrophe, as tiktoken's regular expressions do.
func TestPiecesOfUnicode16(t *testing.T) {
	for text, want := range map[string][2]int{ // pieces under o200k_base and cl100k_base
		"it'\u017F fine":                 {2, 3},
		"IT'\u017Fx":                     {2, 3},
		"it'\u017E":                      {2, 2},
		"\u1C8A\u1C89\u1C8A":             {2, 1}, // small, then a word of a capital and a small letter
		"a\U00016D40\U00016D41 b":        {2, 2},
		"\U0001CCF0\U0001CCF1\U0001CCF2": {1, 1}, // digits
		"x\u0897y":                       {1, 2}, // a mark is not a letter of cl100k_base
	} {
		for i, enc := range ours {
			c, err := codecOf(enc)
			if err != nil {
				t.Fatal(err)
			}
			if got := pieces(c, []byte(text)); len(got) != want[i] {
				t.Errorf("%v: %+q has pieces %+q, want %d", enc, text, got, want[i])
			}
		}
	}
}
