package simulate

import (
	"fmt"
	"math"

	"github.com/llmguard/llmguard/internal/figures"
	"github.com/llmguard/llmguard/pricing"
)

// The page, in units of the drawing.
const (
	width  = 960
	left   = 70
	right  = 940
	height = 150 // of a panel's plot area
)

// canvas is a drawing that grows downwards, panel by panel.
type canvas struct {
	figures.Drawing
	y float64 // top of the next panel
}

// open starts a panel with its heading, grid and scale.
func (c *canvas) open(head string, n int, most float64, unit func(float64) string) figures.Frame {
	c.Text(left, c.y+14, "head", head)
	f := figures.Frame{Left: left, Right: right, Upper: c.y + 44, Height: height, N: n}
	for _, v := range f.Scale(most) {
		c.Rule(left, f.Y(v), right, f.Y(v), "grid")
		c.Text(left-8, f.Y(v)+4, "tick end", unit(v))
	}
	return f
}

func (c *canvas) close() { c.y += 44 + height + 50 }

// dollars formats an amount in nano-USD.
func dollars(v float64) string { return figures.USD(pricing.Nano(math.Round(v))) }

func percent(v float64) string { return fmt.Sprintf("%.0f %%", 100*v) }

// number formats a count on an axis, where fractions have no meaning.
func number(v float64) string {
	if v != math.Trunc(v) {
		return ""
	}
	return figures.Count(int64(v))
}
