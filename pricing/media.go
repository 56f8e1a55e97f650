package pricing

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// ImagePrice is the price of one picture of a size and quality: a separate price (Each), or a
// number of output tokens (Tokens), which only bounds a call: the bill is based on the answer's
// usage. An empty Size or Quality matches all; a price for the requested size takes precedence.
//
// A request without a size or quality is charged at the first matching price in the list, which
// should be the provider's default. A request that leaves the choice to the provider ("auto") is
// held at the highest price, and so is every size or quality that is counted in Tokens.
type ImagePrice struct {
	Size, Quality string
	Each          Rate
	Tokens        int64
}

// auto leaves the choice to the provider.
const auto = "auto"

// fits reports whether the price may apply to a picture.
func (i ImagePrice) fits(size, quality string) bool {
	one := func(own, asked string) bool { return own == "" || asked == "" || asked == auto || own == asked }
	return one(i.Size, size) && one(i.Quality, quality)
}

// Image returns the price of one picture, and whether the list has one. Size and quality are as
// named in the request or the answer, or "".
func (p *Price) Image(t Terms) (ImagePrice, bool) {
	row := p.entry.periodAt(p.instant(t).Unix()).find("", canonicalRegion(t.Region), 0, 0)
	return row.image(t)
}

// HasImages reports whether the price lists pictures.
func (p *Price) HasImages() bool {
	return len(p.entry.periodAt(p.at.Unix()).find("", "", 0, 0).images) > 0
}

func (r *row) image(t Terms) (best ImagePrice, ok bool) {
	sized := t.ImageSize != "" && t.ImageSize != auto
	for _, i := range r.images {
		switch {
		case !i.fits(t.ImageSize, t.ImageQuality):
		case !ok || sized && best.Size == "" && i.Size != "":
			best, ok = i, true
		case sized && best.Size != "" && i.Size == "":
		case i.Tokens == 0 && t.ImageSize != auto && t.ImageQuality != auto: // the first one is the provider's default
		case i.Each.Pico > best.Each.Pico || i.Tokens > best.Tokens:
			best = i
		}
	}
	return best, ok
}

// priced returns the list with the price of a picture under these terms. A size or quality that is
// not listed costs as much as the most expensive one.
func (r *row) priced(list *rates, t Terms) *rates {
	if len(r.images) == 0 {
		return list
	}
	i, ok := r.image(t)
	if !ok {
		i = slices.MaxFunc(r.images, func(a, b ImagePrice) int { return int(min(max(a.Each.Pico-b.Each.Pico, -1), 1)) })
	}
	own := *list
	own.perImage = uint64(i.Each.Pico)
	return &own
}

// ByRule reports whether a call's price follows from the request, so that an answer needs no usage:
// pictures, characters or minutes have a price.
func (p *Price) ByRule() (images, characters, minutes bool) {
	row := p.entry.periodAt(p.at.Unix()).find("", "", 0, 0)
	images = slices.ContainsFunc(row.images, func(i ImagePrice) bool { return i.Each.Given })
	return images, row.spoken, row.timed
}

// PerRequest reports whether the price has a fee for every request.
func (p *Price) PerRequest() bool {
	return p.entry.periodAt(p.at.Unix()).find("", "", 0, 0).pay.perRequest > 0
}

// PerSearchUnit reports whether search units have a price.
func (p *Price) PerSearchUnit() bool {
	return p.entry.periodAt(p.at.Unix()).find("", "", 0, 0).united
}

// millisPerMinute converts milliseconds of audio to minutes, the unit of its price.
const millisPerMinute = 60_000

// minutes returns the price of the audio in pico-units, rounded up.
func (r *rates) minutes(u *Usage) uint64 {
	w, _ := (wide{}).addMul(uint64(u.AudioMillis), r.perMinute)
	pico, ok := w.ceilDiv(millisPerMinute)
	if !ok {
		return math.MaxUint64
	}
	return pico
}

// addMedia adds the price of pictures, characters, audio and search units.
func (w wide) addMedia(r *rates, u *Usage) (wide, bool) {
	if u.Images == 0 && u.Characters == 0 && u.AudioMillis == 0 && u.SearchUnits == 0 {
		return w, true
	}
	w, a := w.addMul(uint64(u.Images), r.perImage)
	w, b := w.addMul(uint64(u.Characters), r.perCharacter)
	w, c := w.add(wide{lo: r.minutes(u)})
	w, d := w.addMul(uint64(u.SearchUnits), r.perSearchUnit)
	return w, a && b && c && d
}

// media adds the same to a running sum.
func (r *running) media(list *rates, u *Usage) {
	var ok bool
	r.perCall, ok = r.perCall.addMedia(list, u)
	r.ok = r.ok && ok
}

func checkImages(list []ImagePrice) error {
	for n, i := range list {
		switch {
		case i.Each.Given == (i.Tokens != 0):
			return fmt.Errorf("images[%d]: give either each or tokens", n)
		case i.Each.Pico < 0 || i.Each.Pico > maxFee || i.Tokens < 0 || i.Tokens > MaxCount:
			return fmt.Errorf("images[%d]: out of range", n)
		case i.Size == auto || i.Quality == auto:
			return errors.New("images: auto is not a size or quality; leave it out")
		}
		for _, other := range list[:n] {
			if i.Size == other.Size && i.Quality == other.Quality {
				return fmt.Errorf("images[%d]: the same size and quality is listed twice", n)
			}
		}
	}
	return nil
}

// name and value return the price as a fact.
func (i ImagePrice) name() string {
	name := "image"
	for _, part := range []string{i.Size, i.Quality} {
		if part != "" {
			name += " " + part
		}
	}
	return name
}

func (i ImagePrice) value() string {
	if i.Each.Given {
		return formatDecimal(int64(i.Each.Pico), feeDigits)
	}
	return strconv.FormatInt(i.Tokens, 10) + " tokens"
}

// yaml formats the price as YAML.
func (i ImagePrice) yaml() string {
	var fields []string
	if i.Size != "" {
		fields = append(fields, "size: "+text(i.Size))
	}
	if i.Quality != "" {
		fields = append(fields, "quality: "+text(i.Quality))
	}
	if i.Each.Given {
		fields = append(fields, "each: "+i.value())
	} else {
		fields = append(fields, "tokens: "+strconv.FormatInt(i.Tokens, 10))
	}
	return "{" + strings.Join(fields, ", ") + "}"
}

func images(list []imageYAML) []ImagePrice {
	var out []ImagePrice
	for _, y := range list {
		out = append(out, ImagePrice{Size: y.Size, Quality: y.Quality, Each: Rate(y.Each), Tokens: y.Tokens})
	}
	return out
}
