// Package escape makes text that others wrote visible: in tables, pages, CSV files and messages, no text can move the
// cursor, change the direction of what follows it, link or mention.
package escape

import (
	"encoding/csv"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text replaces control characters, characters that change the direction of text, and other invisible ones by \uXXXX.
// Joiners of letters and of emoji stay.
func Text(s string) string { return except(s, "") }

// Lines is Text for text of several lines, with tabs.
func Lines(s string) string { return except(s, "\n\r\t") }

func except(s, kept string) string {
	hidden := func(r rune) bool { return invisible(r) && !strings.ContainsRune(kept, r) }
	if !strings.ContainsFunc(s, hidden) {
		return s
	}
	var out strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		if hidden(r) {
			fmt.Fprintf(&out, `\u%04X`, r)
		} else {
			out.WriteString(s[:size]) // also a byte that is no character
		}
		s = s[size:]
	}
	return out.String()
}

func invisible(r rune) bool {
	const nonJoiner, joiner = '\u200C', '\u200D'
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) && r != nonJoiner && r != joiner
}

// maxQuoted is how many characters of a text Quoted shows.
const maxQuoted = 200

// Quoted returns a text as code, in which chats such as Slack interpret nothing, with at most 200 characters.
func Quoted(s string) string {
	if r := []rune(s); len(r) > maxQuoted {
		s = string(r[:maxQuoted]) + "..."
	}
	return "`" + Chat(strings.ReplaceAll(s, "`", "'")) + "`"
}

// Chat is Text without the characters that Slack interprets.
func Chat(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(Text(s))
}

// CSV is a csv.Writer of escaped cells.
type CSV struct{ *csv.Writer }

// NewCSV returns a writer of escaped cells.
func NewCSV(w io.Writer) CSV { return CSV{csv.NewWriter(w)} }

// Write writes a row.
func (c CSV) Write(row []string) error {
	out := make([]string, len(row))
	for i, cell := range row {
		out[i] = Text(cell)
	}
	return c.Writer.Write(out) //nolint:wrapcheck // as of csv.Writer
}

// WriteAll writes rows and flushes them.
func (c CSV) WriteAll(rows [][]string) error {
	for _, row := range rows {
		if err := c.Write(row); err != nil {
			return err
		}
	}
	c.Flush()
	return c.Error() //nolint:wrapcheck // as of csv.Writer
}
