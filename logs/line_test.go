package logs

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"regexp"
	"testing"
	"time"
)

var stamp = regexp.MustCompile(`^({"time":"|time=)[0-9-]+T[0-9:.]+(Z|[+-][0-9:]+)`)

// attributes are those of an ordinary call.
func attributes() []slog.Attr {
	return []slog.Attr{
		slog.String("id", "01kakn3mv8"), slog.String("route", "chat.completions"), slog.Int("status", 200),
		slog.Int64("cost_nano_usd", -1<<62), slog.Duration("took", 1234567), slog.Bool("stream", true), slog.String("empty", ""),
		slog.String("all", " !#$%&'()*+,-./09:;<=>?@AZ[]^_`az{|}~"),
	}
}

// TestLine: a line is what slog would write, whatever is in it.
func TestLine(t *testing.T) {
	with := func(more ...slog.Attr) []slog.Attr { return append(attributes(), more...) }
	for name, c := range map[string]struct {
		level   slog.Level
		message string
		attrs   []slog.Attr
		own     bool // written without slog
	}{
		"plain":      {slog.LevelInfo, "call", attributes(), true},
		"bare":       {slog.LevelInfo, "call", nil, true},
		"warning":    {slog.LevelWarn, "call", attributes(), true},
		"own level":  {slog.LevelWarn + 1, "call", attributes(), true},
		"quote":      {slog.LevelInfo, "call", with(slog.String("error", `no "such" thing`)), false},
		"backslash":  {slog.LevelInfo, "call", with(slog.String("user", `a\b`)), false},
		"line break": {slog.LevelInfo, "call", with(slog.String("user", "a\nb\x7f")), false},
		"not ASCII":  {slog.LevelInfo, "call", with(slog.String("user", "Jürgen\u2028\xff")), false},
		"message":    {slog.LevelInfo, "a\tcall", attributes(), false},
		"key":        {slog.LevelInfo, "call", with(slog.Int(`a"b`, 1)), false},
		"error":      {slog.LevelInfo, "call", with(slog.Any("error", errors.New("broken"))), false},
		"float":      {slog.LevelInfo, "call", with(slog.Float64("f", 1e21)), false},
		"group":      {slog.LevelInfo, "call", with(slog.Group("g", slog.Int("n", 1))), false},
		"time":       {slog.LevelInfo, "call", with(slog.Time("at", time.Unix(1, 0))), false},
		"hidden":     {slog.LevelDebug, "call", attributes(), true},
	} {
		for _, text := range []bool{false, true} {
			var got, want bytes.Buffer
			h := New(&got, slog.LevelInfo, text)
			Line(t.Context(), h, c.level, c.message, c.attrs)
			h.Flush()
			o := &slog.HandlerOptions{Level: slog.LevelInfo}
			var ref slog.Handler = slog.NewJSONHandler(&want, o)
			if text {
				ref = slog.NewTextHandler(&want, o)
			}
			slog.New(ref).LogAttrs(t.Context(), c.level, c.message, c.attrs...) //nolint:sloglint // it is the test's
			a, b := stamp.ReplaceAll(got.Bytes(), []byte("now")), stamp.ReplaceAll(want.Bytes(), []byte("now"))
			if !bytes.Equal(a, b) {
				t.Errorf("%s, text %v:\n got %s\nwant %s", name, text, a, b)
			}
			if own := h.write(time.Now(), c.level, c.message, c.attrs); own != c.own {
				t.Errorf("%s: written without slog: %v", name, own)
			}
		}
	}
}

// TestLineOfAnotherLogger: what the handler was given before is in the line, and a
// handler that is not ours is used as it is.
func TestLineOfAnotherLogger(t *testing.T) {
	var out bytes.Buffer
	h := New(&out, slog.LevelInfo, false)
	Line(t.Context(), h.WithAttrs([]slog.Attr{slog.Int("process", 7)}).WithGroup("call"), slog.LevelError, "call", attributes())
	Line(t.Context(), slog.NewTextHandler(&out, nil), slog.LevelInfo, "call", attributes())
	for _, want := range []string{`"process":7,"call":{"id":"01kakn3mv8"`, `msg=call id=01kakn3mv8`} {
		if !bytes.Contains(out.Bytes(), []byte(want)) {
			t.Errorf("no %s in %s", want, out.Bytes())
		}
	}
}

// TestLineAllocatesNothing: it is written at every call.
func TestLineAllocatesNothing(t *testing.T) {
	h, attrs := New(io.Discard, slog.LevelInfo, false), attributes()
	for len(attrs) < 20 {
		attrs = append(attrs, slog.Int("n", len(attrs)))
	}
	if n := testing.AllocsPerRun(1000, func() { Line(t.Context(), h, slog.LevelInfo, "call", attrs) }); n > 0.9 { // the pool may be emptied
		t.Errorf("%v allocations a line", n)
	}
}

func BenchmarkLine(b *testing.B) {
	ctx, attrs := b.Context(), attributes()
	for len(attrs) < 18 {
		attrs = append(attrs, slog.Int("n", len(attrs)))
	}
	ours := New(io.Discard, slog.LevelInfo, false)
	for name, h := range map[string]slog.Handler{"line": ours, "slog": ours.Handler} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Line(ctx, h, slog.LevelInfo, "call", attrs)
			}
		})
	}
}
