package guard

import (
	"cmp"
	"context"
	"fmt"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/owned"
	"github.com/llmguard/llmguard/tokenizer"
	"github.com/llmguard/llmguard/wire"
)

// thing adds what a file or a conversation brings along. What tools read of vector stores
// and containers is billed by the answer's usage, like that of all tools.
func (g *Guard) thing(ctx context.Context, c Caller, k *kept, ref wire.Ref) (err error) {
	switch {
	case ref.Tool:
	case ref.Kind == wire.RefFile && ref.Picture:
		k.pictures++
	case ref.Kind == wire.RefFile:
		k.documents++
	case ref.Kind == wire.RefConversation && c.Batched:
		return wire.BadRequest(ref.Param, "unsupported_parameter", "A batch that the provider runs cannot use a conversation")
	case ref.Kind == wire.RefConversation && k.conversation == "":
		ctx, cancel := context.WithTimeout(ctx, g.deadline+ownedMargin)
		defer cancel()
		k.conversation = ref.ID
		if k.total, err = g.owned.Tokens(ctx, c.Org.ID, ref.ID); err != nil {
			return fmt.Errorf("%w: %w", budget.ErrUnavailable, err)
		}
	}
	return nil
}

// counted is how many tokens of a conversation a request to a model may hold: no more
// than its context, 0 when that is not known.
func (k *kept) counted(context int64) int64 {
	return min(k.total, cmp.Or(context, unknownContext))
}

// pictures is what the pictures that the provider keeps count at most.
func (p *Plan) pictures() int64 {
	n := p.kept.pictures * int64(tokenizer.ImageTokens(p.Target.Model, 0, 0, ""))
	p.imageIn += n
	return n
}

// grow makes it so that the conversation of a call holds so many tokens more than before
// the call.
func (e *errand) grow(tokens int64) {
	id := e.call.kept.conversation
	if id == "" || tokens == e.grown || e.call.Request.Endpoint != wire.Responses {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(e.upstream), settleTimeout)
	defer cancel()
	if err := e.call.guard.owned.AddTokens(ctx, e.call.Caller.Org.ID, id, tokens-e.grown); err != nil {
		e.call.guard.log.Warn("tokens of a conversation not noted, its next call may be held too low", "call", e.call.ID, "err", err)
		return
	}
	e.grown = tokens
}

// shrink takes back what a call would have added that the provider did not carry out.
func (e *errand) shrink() {
	switch e.call.Result.Outcome {
	case Busy, Rejected, Unsent:
		e.grow(0)
	}
}

// pictureItem and documentItem bound the tokens of what an item of a conversation shows,
// of which the size does not show.
const (
	pictureItem  = 1 << 16
	documentItem = unknownContext
)

// AddItems notes, before they are sent, what the items of a request add to a
// conversation.
func (g *Guard) AddItems(ctx context.Context, c Caller, id string, m wire.Mentions) error {
	tokens := m.Items + m.Pictures*pictureItem + m.Documents*documentItem
	if tokens == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	if err := g.owned.AddTokens(ctx, c.Org.ID, id, tokens); err != nil {
		return fmt.Errorf("%w: %w", budget.ErrUnavailable, err)
	}
	return nil
}

// noteCompletion lists a chat completion that was to be stored. Where its list is full it
// is left out.
func (e *errand) noteCompletion(a wire.Answer) {
	c := e.call
	if e.noted {
		return
	}
	e.noted = true
	n := owned.Note{ID: a.ID, Kind: owned.Completion, User: c.Caller.User, Provider: c.Target.Provider.ID, Model: c.Request.Model}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(e.upstream), settleTimeout)
	defer cancel()
	if err := c.guard.keepThing(ctx, c.Caller, n); err != nil {
		c.guard.log.Warn("a stored chat completion is not noted, it cannot be referred to", "call", c.ID, "err", err)
	}
}

// noteContainers notes those that the provider made for the code of an answer, whose
// files the caller may want.
func (e *errand) noteContainers(a wire.Answer) {
	c := e.call
	if len(a.Containers) == 0 || c.translated() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(e.upstream), settleTimeout)
	defer cancel()
	known, err := c.guard.owned.Find(ctx, c.Caller.Org.ID, a.Containers...)
	for _, id := range a.Containers {
		if _, ok := known[id]; ok || err != nil {
			continue
		}
		n := owned.Note{ID: id, Kind: owned.Container, User: c.Caller.User, Provider: c.Target.Provider.ID}
		n.Unit, n.Paid = ContainerEntry+DefaultContainer, now().Add(SessionTime).Unix()
		err = c.guard.keepThing(ctx, c.Caller, n)
	}
	if err != nil {
		c.guard.log.Warn("a container of an answer is not noted, it cannot be referred to", "call", c.ID, "err", err)
	}
}
