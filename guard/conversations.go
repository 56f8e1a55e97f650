package guard

import (
	"cmp"
	"context"
	"fmt"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/ownership"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/tokenizer"
)

// thing adds what a file or a conversation contributes. What tools read from vector stores
// and containers is billed by the answer's usage, like that of all tools.
func (rs *resolver) thing(ctx context.Context, c Caller, k *references, ref wire.Ref) (err error) {
	switch {
	case ref.Tool:
	case ref.Kind == wire.RefFile && ref.Picture:
		k.pictures++
	case ref.Kind == wire.RefFile:
		k.documents++
	case ref.Kind == wire.RefConversation && c.Batched:
		return wire.BadRequest(ref.Param, "unsupported_parameter", "A batch that runs at the provider cannot use a "+
			"conversation")
	case ref.Kind == wire.RefConversation && k.conversation == "":
		ctx, cancel := context.WithTimeout(ctx, rs.deadline+ownedMargin)
		defer cancel()
		k.conversation = ref.ID
		k.total, err = rs.ownership.Tokens(ctx, c.Org.ID, ref.ID)
		if err != nil {
			return fmt.Errorf("%w: %w", budget.ErrUnavailable, err)
		}
	}
	return nil
}

// counted returns how many tokens of a conversation a request to a model may contain: at
// most the model's context, where 0 means unknown.
func (k *references) counted(context int64) int64 {
	return min(k.total, cmp.Or(context, unknownContext))
}

// pictures returns the most that the images stored at the provider may count.
func (e *estimator) pictures() int64 {
	n := e.plan.kept.pictures * int64(tokenizer.ImageTokens(e.plan.Target.Model, 0, 0, ""))
	e.plan.imageIn += n
	return n
}

// addition is what a call in progress may add to its conversation.
type addition struct {
	ownership.Addition
	open bool
}

// adding records what a call may add to its conversation. counted or uncounted ends it.
func (e *upstreamCall) adding() {
	c := e.call
	if c.Plan.kept.conversation == "" || c.Plan.Request.Endpoint != wire.Responses {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(e.upstream), settleTimeout)
	defer cancel()
	most := c.Plan.Input + c.Plan.Output - c.Plan.kept.counted(c.Plan.Price.Context)
	id := fmt.Sprint(c.ID, ".", c.Attempt)
	a, err := c.guard.ownership.Begin(ctx, c.Plan.Caller.Org.ID, c.Plan.kept.conversation, id, most)
	if err != nil {
		c.guard.log.Warn("conversation tokens not recorded, its next hold may be too low", "call", c.ID, "err", err)
		return
	}
	e.addition = addition{a, true}
}

// counted replaces the addition with what the provider has counted of the conversation.
func (e *upstreamCall) counted(u wire.Usage) {
	c, total := e.call, u.Input+u.Output
	most := e.addition.Added() - c.Plan.Output + u.Output
	e.added(max(most, total-c.Plan.kept.total), total)
}

// uncounted ends the addition with what the call may have added, or with nothing if the
// provider did no work.
func (e *upstreamCall) uncounted() {
	if e.call.Result.void() {
		e.added(0, ownership.Unknown)
	} else {
		e.added(e.addition.Added(), ownership.Unknown)
	}
}

// added ends the addition of a call, once.
func (e *upstreamCall) added(most, total int64) {
	c, a := e.call, e.addition
	if !a.open {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(e.upstream), settleTimeout)
	defer cancel()
	if err := c.guard.ownership.End(ctx, a.Addition, most, total); err != nil {
		c.guard.log.Warn("conversation tokens not recorded, its next hold may be too high", "call", c.ID, "err", err)
		return
	}
	e.addition.open = false
}

// pictureItem and documentItem bound the tokens of a conversation item whose size is not
// visible.
const (
	pictureItem  = 1 << 16
	documentItem = unknownContext
)

// Items are what a request adds to a conversation.
type Items struct {
	Conversation, Call string // ids
	Mentions           wire.Mentions
	Named              []ownership.Note // what the mentions name
}

// AddItems records, before they are sent, what the items of a request add to a
// conversation: those it contains, and those of earlier responses that it names. The caller
// must call added with the status of the answer, or 0 and the error if there was none.
func (o *Objects) AddItems(ctx context.Context, c Caller, i Items) (added func(status int, err error), err error) {
	m := i.Mentions
	tokens := m.Items + m.Pictures*pictureItem + m.Documents*documentItem + outputs(i.Named)
	if tokens == 0 {
		return func(int, error) {}, nil
	}
	ctx = context.WithoutCancel(ctx)
	once, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	a, err := o.ownership.Begin(once, c.Org.ID, i.Conversation, i.Call, tokens)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", budget.ErrUnavailable, err)
	}
	return func(status int, err error) {
		if idle(status) || status == 0 && unsent(err) {
			tokens = 0
		}
		ctx, cancel := context.WithTimeout(ctx, settleTimeout)
		defer cancel()
		if err := o.ownership.End(ctx, a, tokens, ownership.Unknown); err != nil {
			o.log.Warn("conversation tokens not recorded, its next hold may be too high", "call", i.Call, "err", err)
		}
	}, nil
}

// outputs returns the output tokens of the responses that the items belong to, counting
// each response once.
func outputs(items []ownership.Note) (tokens int64) {
	of := map[string]bool{}
	for _, n := range items {
		if n.Response != "" && !of[n.Response] {
			of[n.Response] = true
			tokens += n.Output
		}
	}
	return tokens
}

// noteCompletion lists a chat completion that was to be stored. If its list is full, it is
// omitted.
func (e *upstreamCall) noteCompletion(a wire.Answer) {
	c := e.call
	if e.noted {
		return
	}
	e.noted = true
	n := ownership.Note{
		ID: a.ID, Kind: ownership.Completion, Provider: c.Plan.Target.Provider.ID,
		Model: c.Plan.Request.Model,
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(e.upstream), settleTimeout)
	defer cancel()
	if err := c.guard.Objects.Keep(ctx, c.Plan.Caller, n); err != nil {
		c.guard.log.Warn("stored chat completion not recorded, it cannot be referenced", "call", c.ID, "err", err)
	}
}

// noteContainers records the containers that the provider created for the code in an
// answer, because the caller may want their files.
func (e *upstreamCall) noteContainers(a wire.Answer) {
	c := e.call
	if len(a.Containers) == 0 || c.Plan.translated() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(e.upstream), settleTimeout)
	defer cancel()
	known, err := c.guard.ownership.Find(ctx, c.Plan.Caller.Org.ID, a.Containers...)
	for _, id := range a.Containers {
		if _, ok := known[id]; ok || err != nil {
			continue
		}
		n := ownership.Note{ID: id, Kind: ownership.Container, Provider: c.Plan.Target.Provider.ID}
		n.Unit = ContainerEntry + cmp.Or(c.Plan.Request.ContainerMemory, DefaultContainer)
		n.Paid = now().Add(SessionTime).Unix()
		err = c.guard.Objects.Keep(ctx, c.Plan.Caller, n)
	}
	if err != nil {
		c.guard.log.Warn("container of an answer not recorded, it cannot be referenced", "call", c.ID, "err", err)
	}
}
