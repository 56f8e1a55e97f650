package tokenizer

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/llmguard/llmguard/internal/redistest"
)

func TestCacheEqualsCount(t *testing.T) {
	c := NewCache()
	r := rand.New(rand.NewPCG(3, 4))
	var texts [][]byte
	for _, k := range kinds {
		texts = append(texts, k.text(100+r.IntN(2_000)))
	}
	for round := range 3 {
		for _, text := range texts {
			for _, enc := range ours { // the same text under both
				if got, want := c.CountClasses(enc, text), CountClasses(enc, text); got != want {
					t.Fatalf("round %d %v: %+v, want %+v", round, enc, got, want)
				}
			}
		}
	}
}

func TestCacheRemembers(t *testing.T) {
	c := NewCache()
	text := kinds[0].text(300)
	calls := 0
	for range 3 {
		c.remember(0, text, func() Classes { calls++; return Classes{Tokens: 7, Bytes: len(text)} })
	}
	if calls != 1 {
		t.Errorf("counted %d times, want 1", calls)
	}
	text[0]++
	if k := c.remember(0, text, func() Classes { return Classes{Tokens: 8} }); k.Tokens != 8 {
		t.Errorf("another text was taken for it: %+v", k)
	}
	for i := range c.slots { // a half-written slot does not match
		c.slots[i].keys[1].Add(1)
	}
	if k := c.remember(0, text, func() Classes { return Classes{Tokens: 9} }); k.Tokens != 9 {
		t.Errorf("a damaged slot was believed: %+v", k)
	}
	if n := c.Count(O200k, []byte("short")); n != 1 {
		t.Errorf("short text: %d", n)
	}
	if n := (*Cache)(nil).Count(O200k, text); n != Count(O200k, text) {
		t.Errorf("nil cache: %d", n)
	}
}

// TestCacheKeeps: a few thousand texts in turn, as in many conversations, stay cached.
func TestCacheKeeps(t *testing.T) {
	c := NewCache()
	counted := 0
	const texts = 8000
	for range 3 {
		for i := range texts {
			c.remember(0, fmt.Appendf(nil, "text %d", i), func() Classes { counted++; return Classes{Tokens: i} })
		}
	}
	if counted > texts+100 { // with one slot per text, about 1,000 are counted again in every round
		t.Errorf("%d texts were counted %d times", texts, counted)
	}
}

func TestCacheTools(t *testing.T) {
	tools := []byte(`[{"type":"function","function":{"name":"f","description":"` + strings.Repeat("long ", 60) + `"}}]`)
	c := NewCache()
	for range 2 {
		if got, want := c.ToolsTokens(O200k, tools), ToolsTokens(O200k, tools); got != want {
			t.Errorf("ToolsTokens = %d, want %d", got, want)
		}
		if got, want := c.Count(O200k, tools), Count(O200k, tools); got != want {
			t.Errorf("Count of the same bytes = %d, want %d", got, want)
		}
	}
	if got, want := (*Cache)(nil).ToolsTokens(O200k, tools), ToolsTokens(O200k, tools); got != want {
		t.Errorf("nil cache: %d, want %d", got, want)
	}
}

// TestCacheConcurrent: with many writers on few slots, a value read is always one that was stored
// for its key.
func TestCacheConcurrent(t *testing.T) {
	c := NewCache()
	c.slots = c.slots[:cacheSlots]
	var texts [32][]byte
	for i := range texts {
		texts[i] = bytes.Repeat([]byte(fmt.Sprint(i)), 200)
	}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 0))
			for range 20_000 {
				i := r.IntN(len(texts))
				want := Classes{Tokens: i, NonASCII: i * 3, Digits: i * 5, DigitGroups: i * 7, Bytes: len(texts[i])}
				if got := c.remember(0, texts[i], func() Classes { return want }); got != want {
					t.Errorf("text %d: %+v", i, got)
				}
			}
		})
	}
	redistest.Wait(t, wg.Wait)
}
