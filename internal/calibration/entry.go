package calibration

import (
	"math"
	"strconv"
	"strings"
	"time"
)

const (
	micro = 1e6 // logarithms and ratios are stored in millionths

	// priorWeight is the number of observations that the prior is worth.
	priorWeight = 20
	// trusted is the number of observations from which the learned quantile raises a hold at
	// its full value, without blending in the prior, because holds that are too low cause
	// overruns.
	trusted = 8

	// floor is the lowest factor of a hold, per mille. An org that sends cheap texts first
	// cannot get later ones held far below their bill.
	floor = 1000

	lowRatio, highRatio = 0.3, 4 // billed to estimated; others are outliers
	maxBase             = 1000   // maximum tokens that a provider may add to a prompt
	minBase             = 8      // less is noise
	minSpread           = 0.25   // of 1/estimate, relative to its mean, to separate base from ratio
)

// entry is one running estimate as stored by lua/calibrate.lua.
type entry struct {
	text           string // as read
	alias          string // for a model name: the version that last answered
	since, updated time.Time
	n              int64   // number of observations of x, capped
	mean, dev, q   float64 // of x: average, mean deviation, high quantile
	m              int64   // number of observations of moments
	moments        []float64
}

// parseEntry parses "=<alias>" or "since,updated,n,mean,dev,q,m,moments..".
func parseEntry(text string) (entry, bool) {
	if alias, ok := strings.CutPrefix(text, "="); ok {
		return entry{text: text, alias: alias}, true
	}
	fields := strings.Split(text, ",")
	numbers := make([]int64, len(fields))
	for i, f := range fields {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return entry{}, false
		}
		numbers[i] = n
	}
	if len(numbers) < 7 {
		return entry{}, false
	}
	e := entry{
		text: text, since: time.UnixMilli(numbers[0]), updated: time.UnixMilli(numbers[1]), n: numbers[2],
		mean: float64(numbers[3]), dev: float64(numbers[4]), q: float64(numbers[5]), m: numbers[6],
	}
	for _, v := range numbers[7:] {
		e.moments = append(e.moments, float64(v))
	}
	return e, true
}

// factors convert an estimate to what to expect and what to hold.
type factors struct {
	mean, hold int // per mille
	base       int64
	entry      *entry // nil: prior only
}

// factorsOf blends what was learned with the prior of a model.
func factorsOf(prior factors, e *entry, limit int) factors {
	if prior.mean == 1000 && prior.hold == 1000 { // counted exactly
		return factors{mean: 1000, hold: 1000, entry: e}
	}
	f := factors{mean: prior.mean, hold: prior.hold, base: prior.base, entry: e}
	if e.m >= trusted {
		f.base = e.base(prior.mean, limit)
	}
	if e.n == 0 {
		return f
	}
	blend := func(prior int, x float64) float64 {
		return (priorWeight*float64(prior) + float64(e.n)*1000*math.Exp(x/micro)) / float64(priorWeight+e.n)
	}
	mean, hold := blend(prior.mean, e.mean), blend(prior.hold, e.q)
	if e.n >= trusted {
		hold = max(hold, 1000*math.Exp(e.q/micro))
	}
	f.mean = min(int(math.Round(mean)), limit)
	f.hold = max(f.mean, floor, min(int(math.Ceil(hold)), limit))
	return f
}

// ratio returns the observed mean, per mille.
func (e *entry) ratio() int { return int(math.Round(1000 * math.Exp(e.mean/micro))) }

// base returns the number of tokens that the provider adds to every prompt. Dividing tokens =
// base + ratio * estimate by the estimate makes it the slope of the observed ratio over
// 1/estimate, with equal noise for all prompts. The slope counts only if it clearly exceeds the
// noise and the prompts differ in size. With prompts of one size, base and ratio cannot be
// separated; only if the ratio alone would be absurd, the part above the prior is taken as
// base.
func (e *entry) base(priorMean, limit int) int64 {
	if len(e.moments) < 4 {
		return 0
	}
	u, r := e.moments[0]/micro, e.moments[1]/micro
	variance := e.moments[2]/(micro*micro) - u*u
	covariance := e.moments[3]/(micro*micro) - u*r
	noise := math.Max(e.dev/micro, 0.02) * r
	evidence := math.Min(float64(e.m), 50)
	b := 0.0
	switch {
	case variance > minSpread*minSpread*u*u && covariance*math.Sqrt(evidence/variance) > 3*noise:
		b = covariance / variance
	case 1000*r > float64(limit):
		b = (r - float64(priorMean)/1000) / u
	}
	if b < minBase {
		return 0
	}
	return int64(math.Min(b, maxBase))
}

// observation appends one call's input in the form of lua/calibrate.lua: the logarithm of the
// ratio, unless it is an outlier, and the moments of the base. If ok is false, the call is
// ignored.
func observation(dst []byte, estimated, actual, base int64) (text []byte, ratio, ok bool) {
	if estimated <= 0 || actual <= 0 {
		return nil, false, false
	}
	x, y := float64(estimated), float64(actual)
	r := y / x
	if r < lowRatio || y-highRatio*x > maxBase {
		return nil, false, false
	}
	b := dst
	if own := float64(actual-base) / x; lowRatio <= own && own <= highRatio {
		b = strconv.AppendInt(b, int64(math.Round(math.Log(own)*micro)), 10)
		ratio = true
	}
	u, rm := micro/x, r*micro
	for _, v := range [4]float64{u, rm, u * u, u * rm} {
		b = strconv.AppendInt(append(b, ','), int64(math.Round(v)), 10)
	}
	return b, ratio, true
}

// produced is the output of calls, in tokens.
type produced struct{ expected, high int64 }

// enoughCalls is the number of calls from which the mean of their output is used instead of
// that of a larger group.
const enoughCalls = 5

// produced returns an output entry's values: x is the logarithm of 1 + tokens, and the only
// moment is thousandths of tokens.
func (e *entry) produced() (produced, bool) {
	if e.n < enoughCalls || len(e.moments) < 1 {
		return produced{}, false
	}
	expected := int64(math.Ceil(e.moments[0] / 1000))
	return produced{expected, max(expected, int64(math.Ceil(math.Expm1(e.q/micro))))}, true
}

func appendOutput(dst []byte, tokens int64) []byte {
	b := strconv.AppendInt(dst, int64(math.Round(math.Log1p(float64(tokens))*micro)), 10)
	return strconv.AppendInt(append(b, ','), tokens*1000, 10)
}
