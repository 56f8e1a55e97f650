package main

import (
	"fmt"
	"html"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The appearance of the terminal picture, in pixels.
const (
	cell   = 8.4 // width of a character
	line   = 18  // height
	margin = 16
)

const ink, paper = "#d6deeb", "#111827"

// palette are the sixteen named colors.
var palette = strings.Fields("#1f2937 #f87171 #4ade80 #facc15 #60a5fa #c084fc #22d3ee #d6deeb " +
	"#6b7280 #fca5a5 #86efac #fde047 #93c5fd #d8b4fe #67e8f9 #ffffff")

// look is the appearance of characters until the next escape sequence.
type look struct {
	fg, bg               string
	bold, dim, underline bool
	reverse              bool
}

// terminalSVG draws a terminal screen, as printed by `tmux capture-pane -e -p`.
func terminalSVG(screen string) []byte {
	lines := strings.Split(strings.TrimRight(screen, "\n "), "\n")
	var body strings.Builder
	columns := 0
	var now look
	for row, text := range lines {
		at := 0
		for part := range strings.SplitSeq(text, "\x1b[") {
			if at > 0 || strings.HasPrefix(text, "\x1b[") {
				if codes, rest, ok := strings.Cut(part, "m"); ok && strings.Trim(codes, "0123456789;:") == "" {
					now.apply(codes)
					part = rest
				}
			}
			now.draw(&body, part, at, row)
			at += utf8.RuneCountInString(part)
		}
		columns = max(columns, at)
	}
	width, height := float64(columns)*cell+2*margin, len(lines)*line+2*margin
	return fmt.Appendf(nil, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%d" viewBox="0 0 %.0f %d" `+
		`font-family="ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace" font-size="14">`+
		"\n<rect width=\"100%%\" height=\"100%%\" rx=\"8\" fill=\"%s\"/>\n%s</svg>\n", width, height, width, height, paper, body.String())
}

// apply applies the codes of one escape sequence.
func (l *look) apply(codes string) {
	list := strings.FieldsFunc(codes, func(r rune) bool { return r == ';' || r == ':' })
	if len(list) == 0 {
		*l = look{}
	}
	for i := 0; i < len(list); i++ {
		n, _ := strconv.Atoi(list[i])
		switch {
		case n == 0:
			*l = look{}
		case n == 1:
			l.bold = true
		case n == 2:
			l.dim = true
		case n == 4:
			l.underline = true
		case n == 7:
			l.reverse = true
		case n == 22:
			l.bold, l.dim = false, false
		case n == 24:
			l.underline = false
		case n == 27:
			l.reverse = false
		case n >= 30 && n <= 37:
			l.fg = palette[n-30]
		case n >= 90 && n <= 97:
			l.fg = palette[n-90+8]
		case n >= 40 && n <= 47:
			l.bg = palette[n-40]
		case n >= 100 && n <= 107:
			l.bg = palette[n-100+8]
		case n == 39:
			l.fg = ""
		case n == 49:
			l.bg = ""
		case n == 38 || n == 48:
			color, used := extended(list[i+1:])
			i += used
			if n == 38 {
				l.fg = color
			} else {
				l.bg = color
			}
		}
	}
}

// extended parses a 256-color or true-color code, and returns how many codes it used.
func extended(codes []string) (color string, used int) {
	number := func(i int) int {
		n, _ := strconv.Atoi(codes[i])
		return n
	}
	switch {
	case len(codes) >= 2 && codes[0] == "5":
		n := number(1)
		if n < 16 {
			return palette[n], 2
		}
		if n >= 232 {
			grey := 8 + 10*(n-232)
			return fmt.Sprintf("#%02x%02x%02x", grey, grey, grey), 2
		}
		level := func(n int) int { return min(n, 1)*55 + 40*n }
		return fmt.Sprintf("#%02x%02x%02x", level((n-16)/36), level((n-16)/6%6), level((n-16)%6)), 2
	case len(codes) >= 4 && codes[0] == "2":
		return fmt.Sprintf("#%02x%02x%02x", number(1), number(2), number(3)), 4
	}
	return "", len(codes)
}

// draw writes characters with the same look, starting at a column.
func (l look) draw(out *strings.Builder, text string, column, row int) {
	count := utf8.RuneCountInString(text)
	fg, bg := l.fg, l.bg
	if fg == "" {
		fg = ink
	}
	if l.reverse {
		if bg == "" {
			bg = paper
		}
		fg, bg = bg, fg
	}
	x, y := float64(column)*cell+margin, row*line+margin
	if bg != "" && count > 0 {
		fmt.Fprintf(out, "<rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\" fill=\"%s\"/>\n", x, y, float64(count)*cell, line, bg)
	}
	if strings.TrimSpace(text) == "" {
		return
	}
	lead := count - utf8.RuneCountInString(strings.TrimLeft(text, " "))
	text = strings.Trim(text, " ")
	style := ""
	for is, attribute := range map[string]bool{` font-weight="bold"`: l.bold, ` opacity="0.65"`: l.dim, ` text-decoration="underline"`: l.underline} {
		if attribute {
			style += is
		}
	}
	fmt.Fprintf(out, "<text x=\"%.1f\" y=\"%d\" textLength=\"%.1f\" lengthAdjust=\"spacingAndGlyphs\" xml:space=\"preserve\" fill=\"%s\"%s>%s</text>\n",
		x+float64(lead)*cell, y+14, float64(utf8.RuneCountInString(text))*cell, fg, style, html.EscapeString(text))
}
