package logs

import (
	"context"
	"log/slog"
	"strconv"
	"sync"
	"time"
)

// Line logs what a slog.Logger of the handler would, but for the source line, which
// costs a look at the stack. Where the handler is a [Handler] that writes JSON and the
// attributes are plain, it writes the line by itself: slog's record of more than five
// attributes is another piece of memory, and writing it takes three times as long.
func Line(ctx context.Context, to slog.Handler, level slog.Level, message string, attrs []slog.Attr) {
	if !to.Enabled(ctx, level) {
		return
	}
	now := time.Now()
	if h, ok := to.(*Handler); ok && h.bare && h.write(now, level, message, attrs) {
		return
	}
	r := slog.NewRecord(now, level, message, 0)
	r.AddAttrs(attrs...)
	_ = to.Handle(ctx, r) // as Logger does
}

// lines are buffers that are used again, of at most maxLine bytes.
var lines = sync.Pool{New: func() any { return &line{make([]byte, 0, 1024)} }}

const maxLine = 16 << 10

// write writes a line, or nothing when it is not plain.
func (h *Handler) write(at time.Time, level slog.Level, message string, attrs []slog.Attr) bool {
	l := lines.Get().(*line)
	l.buf = at.AppendFormat(append(l.buf[:0], `{"time":"`...), time.RFC3339Nano)
	l.buf = append(l.buf, '"')
	plain := l.text(slog.LevelKey, level.String()) && l.text(slog.MessageKey, message)
	for i := range attrs {
		plain = plain && l.attr(&attrs[i])
	}
	if plain {
		_, _ = h.out.Write(append(l.buf, '}', '\n')) // as Logger does
		h.prompt(level)
	}
	if cap(l.buf) <= maxLine {
		lines.Put(l)
	}
	return plain
}

// line is a line of JSON in the making. Its methods are false when slog would have to
// escape something or to look into a value.
type line struct{ buf []byte }

func (l *line) attr(a *slog.Attr) bool {
	switch v := a.Value; v.Kind() {
	case slog.KindString:
		return l.text(a.Key, v.String())
	case slog.KindInt64:
		ok := l.key(a.Key)
		l.buf = strconv.AppendInt(l.buf, v.Int64(), 10)
		return ok
	case slog.KindDuration:
		ok := l.key(a.Key)
		l.buf = strconv.AppendInt(l.buf, int64(v.Duration()), 10)
		return ok
	case slog.KindBool:
		ok := l.key(a.Key)
		l.buf = strconv.AppendBool(l.buf, v.Bool())
		return ok
	default:
		return false
	}
}

func (l *line) key(key string) bool {
	l.buf = append(append(append(l.buf, `,"`...), key...), `":`...)
	return plain(key)
}

func (l *line) text(key, value string) bool {
	ok := l.key(key)
	l.buf = append(append(append(l.buf, '"'), value...), '"')
	return ok && plain(value)
}

// plain reports whether JSON has the text as it is.
func plain(text string) bool {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}
