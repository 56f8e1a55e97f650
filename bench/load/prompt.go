package load

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
)

// Prompt describes request bodies. They are chat completions with an output limit; their text
// is invented English.
type Prompt struct {
	Size   int    // approximate bytes of message text
	Repeat bool   // keep the conversation and change only its last message
	Stream bool   // request a stream
	Model  string // default gpt-4o-mini
}

// String returns a name such as "8192 B, new" or "300 B, new, stream".
func (p Prompt) String() string {
	name := fmt.Sprintf("%d B, new", p.Size)
	if p.Repeat {
		name = fmt.Sprintf("%d B, repeated", p.Size)
	}
	if p.Stream {
		name += ", stream"
	}
	return name
}

// messageSize is the length of messages in a conversation.
const messageSize = 2048

// bodies builds the request bodies of one caller in one buffer. It is not safe for concurrent
// use.
type bodies struct {
	prompt Prompt
	rng    *rand.Rand
	head   []byte // everything before the messages
	fixed  []byte // the repeated messages
	buf    []byte
}

func newBodies(p Prompt, seed uint64) *bodies {
	b := &bodies{prompt: p, rng: rand.New(rand.NewPCG(seed, 1))}
	model := p.Model
	if model == "" {
		model = "gpt-4o-mini"
	}
	b.head = fmt.Appendf(nil, `{"model":%q,"stream":%v,"max_completion_tokens":64,"messages":[`, model, p.Stream)
	if p.Repeat {
		b.fixed = b.conversation(nil, max(p.Size-lastSize, 0))
	}
	return b
}

// lastSize is the size of the new message in a repeated conversation.
const lastSize = 300

// next returns the next body, valid until the following call.
func (b *bodies) next() []byte {
	b.buf = append(b.buf[:0], b.head...)
	last := b.prompt.Size
	switch {
	case b.prompt.Repeat:
		b.buf = append(b.buf, b.fixed...)
		last = lastSize
	case last > messageSize:
		b.buf = b.conversation(b.buf, b.prompt.Size-messageSize)
		last = messageSize
	}
	b.buf = b.message(b.buf, "user", last)
	return append(b.buf, "]}"...)
}

// conversation appends messages with this many bytes in total, each followed by a comma.
func (b *bodies) conversation(to []byte, size int) []byte {
	roles := []string{"system", "user", "assistant"}
	for i := 0; size > 0; i++ {
		n := min(size, messageSize)
		to = b.message(to, roles[min(i, 1+i%2)], n)
		to = append(to, ',')
		size -= n
	}
	return to
}

// message appends one message with a random excerpt of the corpus.
func (b *bodies) message(to []byte, role string, size int) []byte {
	text := corpus()
	at := b.rng.IntN(len(text) - size)
	to = append(to, `{"role":"`...)
	to = append(to, role...)
	to = append(to, `","content":"`...)
	to = append(to, text[at:at+size]...)
	return append(to, `"}`...)
}

// corpus is 2 MB of text without characters that JSON escapes.
var corpus = sync.OnceValue(func() string { return makeCorpus(2 << 20) })

func makeCorpus(size int) string {
	rng := rand.New(rand.NewPCG(20, 26))
	list := strings.Fields(vocabulary)
	var text strings.Builder
	sentence := 0
	for text.Len() < size {
		word := list[min(rng.IntN(len(list)), rng.IntN(len(list)))] // favors earlier words
		if sentence == 0 {
			word = strings.ToUpper(word[:1]) + word[1:]
			sentence = 5 + rng.IntN(18)
		}
		text.WriteString(word)
		switch sentence--; {
		case sentence == 0:
			text.WriteByte('.')
		case rng.IntN(12) == 0:
			text.WriteByte(',')
		case rng.IntN(60) == 0:
			fmt.Fprintf(&text, " %d", rng.IntN(100_000))
		}
		text.WriteByte(' ')
	}
	return text.String()
}

const vocabulary = `the of and to a in is it that for was on are with as be at
by this had not but from or have an they which one you were all her she there
would their we him been has when who will more no if out so up said what its
about than into them can only other time new some could these two may first
then do any like my now over such our man me even most made after also did
many off before must well back through years much where your way down should
because long each just state those people too mr how little good world make
very year still see own work men day get here old life both between being under
three never know same last another while us might great go come since against
right came take used himself few house use during without again place american
around however home small found mrs thought went say part once general high
upon school every don war until always away something fact water less public
put thing almost hand enough far took head yet government system set better
told nothing night end why called didn eyes find going look asked later knew
point next program city business give group toward young days let room word
president side social present given several order national possible rather
second face per among form important often things looked early white case john
become large big need four within felt along children saw best church ever
least power development light thus seemed family interest want members mind
country area others turned done open service certain kind began different door
sense whole matter help perhaps community itself york problem hard student
information question company history result morning reason evidence research
industry language computer quality measure training increase management
department international economic particular experience available knowledge
education production including university understanding responsibility
environment significant organization relationship technology performance
individual traditional professional approximately characteristic requirements`
