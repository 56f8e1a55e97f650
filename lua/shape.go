package lua

import (
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// A file shape_<name>.lua has what a shape of limits does, in sections that begin
// with a line "--@ <section>":
//
//	with    functions that the others use; may be missing
//	read    sets st, of key, p1, p2 and now
//	charge  sets place, of st, n, id, nth, held
//	text    sets text, of st; it stands before write, which may use it
//	write   stores st, of st, key, p1, p2 and text
//	change  sets back, which is 0, of st, key, place, from, to, open, id, nth
//	rest    adds the other functions to the table s
//
// Most scripts get a function of each section (shapeFunctions). Hold and settle, of
// which every call has one, get the sections themselves, once for each limit: Redis
// defines every function anew in every run of a script, and that and the loops around
// them took a quarter of their time.
//
// A line "--+ <name>" stands for the file of that name: functions of rare branches
// are defined there, not in every run.
const (
	mark    = "--@ "
	include = "--+ "
)

// shapes are the names of the shapes by the kinds of lua/shape_of.lua.
var shapes = map[byte]string{'w': "ring", 'x': "log", 'b': "bucket", 'c': "period", 'n': "concurrency"}

// allShapes has the kind of every shape once.
const allShapes = "wxbcn"

// sections cuts a text at its marks; what is before the first is under "".
func sections(text string) map[string]string {
	out := map[string]string{}
	name, from, at := "", 0, 0
	for line := range strings.Lines(text) {
		if after, ok := strings.CutPrefix(line, mark); ok {
			out[name] = text[from:at]
			name, from = strings.TrimSpace(after), at+len(line)
		}
		at += len(line)
	}
	out[name] = text[from:]
	return out
}

// shapeFunctions turns the sections of a shape into a function <name>_shape that
// returns a table of functions; other files it leaves alone.
func shapeFunctions(text string) string {
	s := sections(text)
	if s["read"] == "" {
		return text
	}
	return s[""] + "local function " + nameOf(text) + "_shape()\n" + s["with"] + "return {\n" +
		"read = function(key, p1, p2, now)\nlocal st\n" + s["read"] + "return st\nend,\n" +
		"charge = function(st, n, id, nth, held)\nlocal place\n" + s["charge"] + "return place\nend,\n" +
		"text = function(st)\nlocal text\n" + s["text"] + "return text\nend,\n" +
		"write = function(st, key, p1, p2)\nlocal text\n" + s["text"] + s["write"] + "return text\nend,\n" +
		"rest = function(s)\n" + s["rest"] +
		"function s.change(st, key, place, from, to, open, id, nth)\nlocal back = 0\n" + s["change"] + "return back\nend\n" +
		"end,\n}\nend\n"
}

// nameOf returns the name of the shape whose kind the first line of its file says.
func nameOf(text string) string {
	_, rest, _ := strings.Cut(text, "the shape of kind ")
	return shapes[rest[0]]
}

// Unroll returns the script in <name>.lua for limits of these kinds, a letter each.
// What is between "--@ each" and "--@ end" is repeated for each limit, with its
// number for "$" and the sections of its shape for the marks that name them.
// Such a piece begins with "--@ own <names>", the variables of each limit.
// "--@ shapes" becomes the functions of the shapes in use. The script's libraries come
// first.
func Unroll(from fs.FS, name, kinds string) *redis.Script {
	return redis.NewScript(unrollText(from, name, kinds))
}

func unrollText(from fs.FS, name, kinds string) string {
	text := ""
	for _, lib := range libraries[name] {
		text += read(from, lib)
	}
	functions := ""
	used := []byte(kinds)
	slices.Sort(used)
	for _, kind := range slices.Compact(used) {
		file := read(from, "shape_"+shapes[kind])
		text += sections(file)["with"]
		functions += shapeFunctions(file)
	}
	functions += read(from, "shape_of")
	if len(kinds) > ownLocals {
		text += "local many = {}\n"
	}

	var each *strings.Builder
	for line := range strings.Lines(read(from, name)) {
		switch what, marked := strings.CutPrefix(strings.TrimSpace(line), mark); {
		case marked && what == "each":
			each = &strings.Builder{}
		case marked && what == "end":
			for i := range len(kinds) {
				text += forLimit(from, each.String(), kinds[i], i+1)
			}
			each = nil
		case marked && what == "shapes":
			text += functions
		case each != nil:
			each.WriteString(line)
		default:
			text += line
		}
	}
	return text
}

// ownLocals is for how many limits the variables of each are locals, of which a
// function has at most 200. Those of the others are in a table.
const ownLocals = 20

// numbered are the variables of each limit.
var numbered = regexp.MustCompile(`\b([a-z]+)\$`)

// forLimit fills in a repeated piece for limit number i.
func forLimit(from fs.FS, piece string, kind byte, i int) string {
	shape := sections(read(from, "shape_"+shapes[kind]))
	if i > ownLocals {
		piece = numbered.ReplaceAllString(piece, "many.$1$$")
	}
	out := ""
	for line := range strings.Lines(strings.ReplaceAll(piece, "$", strconv.Itoa(i))) {
		if what, marked := strings.CutPrefix(strings.TrimSpace(line), mark); marked {
			line = shape[what]
			if what == "write" {
				line = shape["text"] + line
			}
			if names, own := strings.CutPrefix(what, "own "); own && i <= ownLocals {
				line = "local " + names + "\n"
			}
		}
		out += line
	}
	return out
}
