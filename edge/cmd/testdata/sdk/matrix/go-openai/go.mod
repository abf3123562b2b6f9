module go-openai

go 1.26.0

require (
	client v0.0.0
	github.com/sashabaranov/go-openai v1.43.0
)

replace client => ../client
