"""The modes in which a request is answered: staged, agent, ReAct, and keyless."""
