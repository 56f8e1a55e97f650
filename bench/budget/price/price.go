// Package price is the suite's own price list and arithmetic, in integer nano-USD (1e-9 USD). It
// shares no code with any gateway.
package price

// Nano is an amount of money in nano-USD.
type Nano int64

// USD is one US dollar.
const USD Nano = 1e9

// Model is what a model costs.
type Model struct {
	Name   string
	Input  Nano // per token outside the provider's cache
	Cached Nano // per token read from the provider's cache
	Output Nano // per generated token, reasoning included
	Image  Nano // per image of 1024x1024 in standard quality
	Second Nano // per second of a recording
}

// Models are the models that the mock provider sells. Names and prices are OpenAI's of November
// 2026, so that gateways with a fixed price list can take part.
var Models = []Model{
	{Name: "gpt-4o", Input: 2500, Cached: 1250, Output: 10000},
	{Name: "gpt-4o-mini", Input: 150, Cached: 75, Output: 600},
	{Name: "o4-mini", Input: 1100, Cached: 275, Output: 4400},
	{Name: "text-embedding-3-small", Input: 20},
	{Name: "dall-e-3", Image: 40_000_000},
	{Name: "whisper-1", Second: 100_000},
}

// Of returns the price of a model. The second result is false if the mock does not sell it.
func Of(name string) (Model, bool) {
	for _, m := range Models {
		if m.Name == name {
			return m, true
		}
	}
	return Model{}, false
}

// Usage is what a call used.
type Usage struct {
	Input, Cached     int // tokens; Cached is a part of Input
	Output, Reasoning int // tokens; Reasoning is a part of Output
	Images, Seconds   int
}

// Cost is the price of a usage.
func (m Model) Cost(u Usage) Nano {
	return m.Input*Nano(u.Input-u.Cached) + m.Cached*Nano(u.Cached) + m.Output*Nano(u.Output) +
		m.Image*Nano(u.Images) + m.Second*Nano(u.Seconds)
}

// Abs is the amount without its sign.
func (n Nano) Abs() Nano { return max(n, -n) }
