"""/v1/responses: the same questions and answers in another shape. Nothing is stored for a later request.

items     input items as messages of a chat
reading   a body as a question
writing   the answer as a response, whole or as events
"""
